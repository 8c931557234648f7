package launch

import (
	"os"
	"path/filepath"
	"runtime"
)

// libraryFolders are the folders of toolkits and of Python environments, where
// NVIDIA's libraries may be. None is
// relative: what lies in the working folder is not to be run.
func libraryFolders() []string {
	home, _ := os.UserHomeDir()
	var patterns []string
	if runtime.GOOS == "windows" {
		patterns = []string{os.Getenv("CUDA_PATH") + `\bin`, os.Getenv("CUDA_PATH") + `\bin\x64`}
	} else {
		patterns = []string{
			"/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/opt/cuda/lib64",
			"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
			os.Getenv("CUDA_HOME") + "/lib64", os.Getenv("CONDA_PREFIX") + "/lib",
		}
	}
	for _, root := range []string{
		os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX"), "/usr", "/usr/local", "/opt/*", "/opt/*/.venv", "/opt/*/envs/*",
		home + "/.local", home + "/.venv", home + "/*",
	} {
		patterns = append(patterns,
			root+"/lib/python3*/site-packages/nvidia/*/lib", root+"/lib/python3*/dist-packages/nvidia/*/lib")
	}
	for _, path := range filepath.SplitList(os.Getenv("PYTHONPATH")) {
		patterns = append(patterns, path+"/nvidia/*/lib")
	}
	var folders []string
	for _, p := range patterns {
		if !filepath.IsAbs(p) {
			continue
		}
		found, _ := filepath.Glob(p) // the error is of a bad pattern, which is no folder
		folders = append(folders, found...)
	}
	return folders
}
