package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"windrow/client"
	"windrow/listen"
)

// The exit codes of status, as systemctl has them.
const (
	exitNotAnswering = 1
	exitNotRunning   = 3
)

// exitError is an outcome that has been printed, and its exit code.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// apiKeyVariable is the environment variable of the key that commands bring to a server.
const apiKeyVariable = "WINDROW_API_KEY"

// askTime is how long a command waits for a server to say how it is.
const askTime = 5 * time.Second

func atFlag() cli.Flag {
	return &cli.StringFlag{Name: "server", Category: categoryServer, DefaultText: "the user's own socket", Usage: "`ADDRESS` of the server: unix:PATH, HOST:PORT, or a URL"}
}

// dial is a client of the server that --server names.
func dial(c *cli.Context) (*client.Client, error) {
	if c.Args().Present() {
		return nil, usagef("takes no arguments, got %q", c.Args().First())
	}
	s, err := client.New(c.String("server"), os.Getenv(apiKeyVariable))
	if err != nil {
		return nil, usagef("--server %w", err)
	}
	return s, nil
}

func stopCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "stop",
		Usage: "end the server in the background",
		Description: "Requests that run are answered first, as long as the server's --drain lasts; then it ends.\n" +
			"Where no server runs, nothing is done.",
		Flags: []cli.Flag{
			atFlag(),
			&cli.BoolFlag{Name: "now", Category: categoryServer, Usage: "end requests that run, too"},
		},
		Action: stop,
	}, "windrow stop")
}

func stop(c *cli.Context) error {
	s, err := dial(c)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Socket == "" {
		return usagef("--server %s: want a Unix socket: a server elsewhere is ended by whoever started it", c.String("server"))
	}
	pid, err := processOf(c.Context, s)
	if errors.Is(err, client.ErrNotRunning) {
		fmt.Fprintln(c.App.ErrWriter, "windrow: no server is running")
		return nil
	}
	if err != nil {
		return err
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = terminate(process, c.Bool("now"))
	}
	if err != nil {
		return fmt.Errorf("pid %d: %w", pid, err)
	}
	for alive(process) {
		select {
		case <-c.Context.Done():
			return context.Cause(c.Context)
		case <-time.After(20 * time.Millisecond):
		}
	}
	fmt.Fprintf(c.App.ErrWriter, "windrow: stopped, pid %d\n", pid)
	return nil
}

// processOf is the process that answers at a socket, or that holds its lock.
func processOf(ctx context.Context, s *client.Client) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	h, err := s.Health(ctx)
	if err == nil && h.PID > 0 {
		return h.PID, nil
	}
	pid, holderErr := listen.Holder(s.Socket)
	switch {
	case holderErr == nil && pid > 0:
		return pid, nil
	case err == nil:
		return 0, fmt.Errorf("%s: whoever answers there does not say its pid", s.Where)
	}
	return 0, err
}

func statusCommand() *cli.Command {
	return command(&cli.Command{
		Name:  "status",
		Usage: "say whether a server runs, and how it is",
		Description: fmt.Sprintf("The exit code is %d where one answers, %d where none runs, %d where one runs and does not answer.",
			exitOK, exitNotRunning, exitNotAnswering),
		Flags:  []cli.Flag{atFlag(), &cli.BoolFlag{Name: "json", Category: categoryOutput, Usage: "print one JSON object"}},
		Action: status,
	}, "windrow status")
}

// serverStatus is the object that status --json prints.
type serverStatus struct {
	State    string  `json:"state"` // ready, loading, unready or stopped
	Server   string  `json:"server"`
	PID      int     `json:"pid,omitempty"`
	Model    string  `json:"model,omitempty"`
	Progress float64 `json:"progress,omitempty"`
	Why      string  `json:"why,omitempty"`
}

func status(c *cli.Context) error {
	s, err := dial(c)
	if err != nil {
		return err
	}
	defer s.Close()
	st, outcome := ask(c.Context, s)
	if c.Bool("json") {
		if err := writeJSON(c.App.Writer, st); err != nil {
			return err
		}
	} else {
		line := st.State + ", " + st.Server
		if st.PID > 0 {
			line += fmt.Sprintf(", pid %d", st.PID)
		}
		if st.Model != "" {
			line += ", " + st.Model
		}
		if st.State == "loading" {
			line += fmt.Sprintf(", %.0f %%", 100*st.Progress)
		}
		if st.Why != "" {
			line += ": " + oneLine(st.Why)
		}
		if _, err := fmt.Fprintln(c.App.Writer, line); err != nil {
			return err
		}
	}
	if outcome != exitOK {
		return &exitError{code: outcome}
	}
	return nil
}

// ask finds out how a server is, and the exit code that it means.
func ask(ctx context.Context, s *client.Client) (serverStatus, int) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st := serverStatus{State: "ready", Server: s.Where}
	h, err := s.Health(ctx)
	if err != nil {
		pid := 0
		if s.Socket != "" {
			pid, _ = listen.Holder(s.Socket)
		}
		if pid == 0 && errors.Is(err, client.ErrNotRunning) {
			st.State = "stopped"
			return st, exitNotRunning
		}
		st.State, st.PID, st.Why = "unready", pid, err.Error()
		return st, exitNotAnswering
	}
	st.PID, st.Model = h.PID, h.Model
	if h.Progress != nil {
		st.State, st.Progress = "loading", *h.Progress
		return st, exitOK
	}
	if err := s.Ready(ctx); err != nil {
		st.State, st.Why = "unready", err.Error()
	}
	return st, exitOK
}
