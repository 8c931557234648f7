// Projections by 8-bit affine weights in groups of 64 or 128.
#include "project.cuh"

using Affine8 = AffineGroups<Bytes, 64>;
PROJECT_ALL(project_affine8, Affine8)
