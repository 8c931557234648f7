// Projections by Q8_0 blocks.
#include "project.cuh"

PROJECT_ALL(project_q8_0, PackedQ8_0)
