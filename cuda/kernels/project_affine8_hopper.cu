// Projections of many rows by 8-bit affine weights in groups of 64 or 128, by the
// instructions of warpgroups. Runs on a GPU only.
#include "project.cuh"
#include "project_wgmma.cuh"
#ifdef __NVPTX__
using Weights = AffineGroups<Bytes, 64>;
PROJECT(project_affine8_hopper_6, Weights, 6, true)
PROJECT(project_affine8_hopper_8, Weights, 8, true)
PROJECT(project_affine8_hopper_16, Weights, 16, true)
#endif
