// Package launch runs single operations on an NVIDIA GPU. A Device is one GPU with a
// stream and the kernels loaded so far; its launchers, a file for each file of
// kernels, enqueue on that stream and allocate nothing on the device. Their first
// error is kept until Take. It knows weights, pages and step blocks in the device's
// memory; programs, storage and graphs are package cuda's.
//
// SelfTests check the kernels on test vectors: tests run them, and the doctor on a
// user's GPU.
package launch
