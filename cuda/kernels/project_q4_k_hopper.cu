// Projections of many rows by Q4_K blocks, by the
// instructions of warpgroups. Runs on a GPU only.
#include "project.cuh"
#include "project_wgmma.cuh"
#ifdef __NVPTX__
using Weights = PackedQ4_K;
PROJECT(project_q4_k_hopper_6, Weights, 6, true)
PROJECT(project_q4_k_hopper_8, Weights, 8, true)
PROJECT(project_q4_k_hopper_16, Weights, 16, true)
#endif
