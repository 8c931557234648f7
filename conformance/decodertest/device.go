package decodertest

import "windrow/cuda/emulator"

// Device names the backend that tests of whole answers open: the CPU's, or CUDA's on a
// machine where WINDROW_CUDA_DEVICE has the number of a GPU.
func Device() string {
	if emulator.OnGPU {
		return "cuda"
	}
	return "cpu"
}
