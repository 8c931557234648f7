// Projections by Q6_K blocks.
#include "project.cuh"

PROJECT_ALL(project_q6_k, PackedQ6_K)
