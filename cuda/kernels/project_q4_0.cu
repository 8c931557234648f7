// Projections by Q4_0 blocks.
#include "project.cuh"

PROJECT_ALL(project_q4_0, PackedQ4_0)
