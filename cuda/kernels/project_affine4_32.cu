// Projections by 4-bit affine weights in groups of 32.
#include "project.cuh"

using Affine4 = AffineGroups<Nibbles, 32>;
PROJECT_ALL(project_affine4_32, Affine4)
