package listen

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier says to systemd how a service is, where systemd asks for it; else it does
// nothing.
type Notifier struct{ watchdog time.Duration }

// NewNotifier reads what systemd asks for.
func NewNotifier() *Notifier {
	interval, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		interval = 0
	}
	return &Notifier{interval}
}

// Ready says that requests are answered, in a line of what.
func (n *Notifier) Ready(what string) { notify(daemon.SdNotifyReady + "\nSTATUS=" + what) }

// Reloading says that the settings are read anew; Ready must follow.
func (n *Notifier) Reloading() { notify(daemon.SdNotifyReloading) }

// Stopping says that no more requests are taken.
func (n *Notifier) Stopping() { notify(daemon.SdNotifyStopping) }

// Watch shows systemd's watchdog that the service is well, twice in its interval, as
// long as well says so, until ctx ends. Who is silent is started anew.
func (n *Notifier) Watch(ctx context.Context, well func() bool) {
	if n.watchdog <= 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for {
		if well() {
			notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// notifyTime is how long a notification may take: one that nobody reads must not keep the
// service from stopping.
const notifyTime = time.Second

func notify(state string) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		daemon.SdNotify(false, state)
	}()
	select {
	case <-said:
	case <-time.After(notifyTime):
	}
}
