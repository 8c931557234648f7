//go:build unix

package checkpoint

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"windrow/internal/testhelp"
)

// A pipe that takes a file's place between the look at it and its opening
// makes nothing wait: the two are exchanged as fast as they can be.
func TestFolderSwapped(t *testing.T) {
	dir := testhelp.Folder(t, map[string][]byte{"config.json": []byte(smallConfig), "other": []byte(smallConfig)})
	pipe, file, name := filepath.Join(dir, "pipe"), filepath.Join(dir, "other"), filepath.Join(dir, "config.json")
	d, err := newFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := syscall.Mkfifo(pipe, 0o644); err != nil {
				t.Error(err)
				return
			}
			os.Rename(pipe, name)
			os.WriteFile(file, []byte(smallConfig), 0o644)
			os.Rename(file, name)
		}
	})
	done := make(chan [2]int, 1)
	go func() {
		var read, refused int
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			if _, err := d.read("config.json"); err == nil {
				read++
			} else {
				refused++
			}
		}
		done <- [2]int{read, refused}
	}()
	select {
	case n := <-done:
		t.Logf("read %d times, refused %d times", n[0], n[1])
	case <-time.After(2 * time.Minute):
		t.Error("the opening of a pipe waits")
	}
	close(stop)
	swapper.Wait()
}

// Links lead to a cache's blobs only, not to any folder of that name.
func TestFolderBlobs(t *testing.T) {
	root := t.TempDir()
	model, cache, other := filepath.Join(root, "model"), filepath.Join(root, "cache"), filepath.Join(root, "other")
	for _, dir := range []string{model, filepath.Join(cache, "blobs"), filepath.Join(cache, "snapshots"), filepath.Join(other, "blobs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := newFolder(model)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		filepath.Join(cache, "blobs", "1"):     "",
		filepath.Join(other, "blobs", "1"):     "link out of the model's folder",
		filepath.Join(cache, "snapshots", "1"): "link out of the model's folder",
		filepath.Join(root, "nothing"):         "link to a file that is missing",
	} {
		link := filepath.Join(model, "config.json")
		if filepath.Base(target) == "1" {
			if err := os.WriteFile(target, []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if _, err := d.read("config.json"); want != "" {
			testhelp.OneLine(t, target, err, want)
		} else if err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}
