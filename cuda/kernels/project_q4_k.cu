// Projections by Q4_K blocks.
#include "project.cuh"

PROJECT_ALL(project_q4_k, PackedQ4_K)
