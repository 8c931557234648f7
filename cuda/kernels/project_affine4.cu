// Projections by 4-bit affine weights in groups of 64 or 128.
#include "project.cuh"

using Affine4 = AffineGroups<Nibbles, 64>;
PROJECT_ALL(project_affine4, Affine4)
