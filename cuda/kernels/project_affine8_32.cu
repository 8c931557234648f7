// Projections by 8-bit affine weights in groups of 32.
#include "project.cuh"

using Affine8 = AffineGroups<Bytes, 32>;
PROJECT_ALL(project_affine8_32, Affine8)
