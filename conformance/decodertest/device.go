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

// Chunk is the rows of a prompt that run together in tests with short prompts: where
// bits depend on how prompts are cut, on a GPU, only whole chunks are kept. 0: the
// backend's own.
func Chunk() int {
	if emulator.OnGPU {
		return 64
	}
	return 0
}
