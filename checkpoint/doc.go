// Package checkpoint opens models as people have them: Hugging Face folders
// (safetensors; MLX's groups, AWQ, GPTQ, FP8, compressed-tensors) and GGUF, of
// one file or several parts. A Source gives a config and tensors; data stays in
// the file's mapping where it can. It computes nothing but what a conversion
// takes, and knows no backend but the types of its tensors.
package checkpoint
