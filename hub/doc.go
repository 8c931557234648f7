// Package hub has models that were downloaded, in the cache that Hugging Face's tools
// share (https://huggingface.co/docs/huggingface_hub/guides/manage-cache): names such as
// hf:Qwen/Qwen3-0.6B, the layout on disk, manifests of what was verified, lists, and
// what may go. It opens no connection; hub/fetch does.
package hub
