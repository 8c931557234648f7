package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/client"
	"windrow/listen"
)

func startCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "start",
		Usage: "put a server into the background, at the user's own socket",
		Description: "Takes the flags of serve, starts it in a session of its own, waits until it answers, and prints its pid,\n" +
			"socket and model. Other addresses of --listen come besides. generate and chat then use it by themselves.",
		Flags:  serveFlags(),
		Action: start,
	}, "windrow start --model ~/models/Qwen3-8B", "windrow start --listen 127.0.0.1:8484")
}

// argumentsKey is where the app keeps the arguments of the command, arranged.
const argumentsKey = "arguments"

func start(c *cli.Context) error {
	if _, err := parseServe(c); err != nil {
		return err
	}
	socket, err := listen.DefaultSocket()
	if err != nil {
		return err
	}
	s, err := client.New("unix:"+socket, "")
	if err != nil {
		return err
	}
	defer s.Close()
	if pid, err := processOf(c.Context, s); err == nil {
		return &listen.RunningError{PID: pid}
	}
	log, from, path, err := openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	arguments, _ := c.App.Metadata[argumentsKey].([]string)
	child, err := background(log, append([]string{"serve", "--listen", "unix:" + socket}, withoutEnd(arguments)...))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	if err := awaitReady(c, s, child.Process.Pid, ended); err != nil {
		if c.Context.Err() != nil {
			terminate(child.Process, false)
			return context.Cause(c.Context)
		}
		if pid, runningErr := processOf(c.Context, s); runningErr == nil && pid != child.Process.Pid {
			return &listen.RunningError{PID: pid} // another start was quicker
		}
		if why := lastComplaint(log, from); why != "" {
			return errors.New(why)
		}
		return fmt.Errorf("%w: see %s", err, path)
	}
	h, err := s.Health(c.Context)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "pid %d, %s, %s; log %s\n", h.PID, s.Where, h.Model, path)
	return err
}

// withoutEnd takes away the mark behind the flags.
func withoutEnd(arguments []string) []string {
	return slices.DeleteFunc(slices.Clone(arguments), func(a string) bool { return a == "--" })
}

// background starts this program in a session of its own.
func background(log *os.File, arguments []string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := &exec.Cmd{Path: self, Args: append([]string{"windrow"}, arguments...), Stdout: log, Stderr: log, SysProcAttr: ownSession()}
	return child, child.Start()
}

// awaitReady waits until the child answers at the socket, showing how far its model is.
func awaitReady(c *cli.Context, s *client.Client, pid int, ended <-chan error) error {
	bar := newProgress(c.App.ErrWriter, "load")
	defer bar.finish()
	for {
		ctx, cancel := context.WithTimeout(c.Context, askTime)
		h, err := s.Health(ctx)
		cancel()
		switch {
		case err == nil && h.PID != pid:
			<-ended // another start was quicker
			return &listen.RunningError{PID: h.PID}
		case err == nil && h.Progress == nil:
			return nil
		case err == nil:
			bar.update(int(100**h.Progress), 100, h.Model)
		}
		select {
		case <-ended:
			return errors.New("the server ended before it was ready")
		case <-c.Context.Done():
			return context.Cause(c.Context)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// maxLog is how long a log may have become before a start begins a new one; the old one
// is kept beside it.
const maxLog = 8 << 20

// openLog opens the log of servers in the background, and says where its end is.
func openLog() (f *os.File, end int64, path string, err error) {
	folder, err := stateFolder()
	if err != nil {
		return nil, 0, "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, 0, "", err
	}
	path = filepath.Join(folder, "serve.log")
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, 0, "", err
		}
	}
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return nil, 0, "", err
	}
	end, err = f.Seek(0, io.SeekEnd)
	return f, end, path, err
}

// stateFolder is where what outlives a program is kept: $XDG_STATE_HOME/windrow, or else
// ~/.local/state/windrow; elsewhere than on Unix, beside the cache.
func stateFolder() (string, error) {
	if s := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(s) {
		return filepath.Join(s, "windrow"), nil
	}
	if filepath.Separator == '\\' {
		folder, err := os.UserCacheDir()
		return filepath.Join(folder, "windrow"), err
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "windrow"), err
}

// lastComplaint is the error that a child ended with, by what stands in the log from a
// place on.
func lastComplaint(log *os.File, from int64) string {
	data, err := io.ReadAll(io.NewSectionReader(log, from, 1<<20))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	for _, line := range slices.Backward(lines) {
		if why, ok := strings.CutPrefix(string(line), "windrow: serve: "); ok {
			return why
		}
	}
	return ""
}
