// Projections by bf16 weights as stored.
#include "project.cuh"

PROJECT_ALL(project_bf16, Rows)
