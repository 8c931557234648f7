package engine

import (
	"fmt"
	"sync"
	"time"

	"windrow/decoder"
)

// learnedVersion names the form of what is kept. Another one is not read.
const learnedVersion = 1

// What is learned is written when the engine is closed, and while it serves once a
// minute, each time only where so many tokens are new.
const (
	learnedTokens = 32
	learnedRest   = time.Minute
)

// learned is what earlier runs of this build saw of a model's drafts on this machine: a
// file beside c(rows), about the same device, kernels and shapes, and about these weights.
type learned struct {
	Version int `json:"version"`
	// Known is what generations begin with.
	Known decoder.Known `json:"known"`
	// Calibration is what [Engine.Calibrate] has measured; nil: nothing.
	Calibration *Calibration `json:"calibration,omitempty"`
}

// usable checks what a file held.
func (l *learned) usable() bool {
	return l.Version == learnedVersion && decoder.NewExperience().Learn(l.Known) == nil &&
		(l.Calibration == nil || l.Calibration.usable())
}

// remembered is what an engine has on disk of what it learned.
type remembered struct {
	mutex       sync.Mutex
	key         string // "": nothing can be kept
	calibration *Calibration
	tokens      int // of the experience, when it was last written
	written     time.Time
}

// remembers reports whether what is learned is kept on disk.
func (e *Engine) remembers() bool {
	return e.files != nil && !e.shared && e.options.Measurements.Folder != NoFolder
}

// remember begins with what earlier runs learned. A file that cannot be used is as none.
func (e *Engine) remember() {
	if !e.remembers() {
		return
	}
	m := e.options.Measurements
	e.remembered.key = fmt.Sprintf("%s, mask %d, %s", e.files.Digest(), e.vocabulary(e.Config()).MaskID, e.costKey())
	e.remembered.written = time.Now()
	var l learned
	there, readable := m.find(learnedKind, e.remembered.key, &l)
	switch {
	case !there:
	case readable && l.usable():
		_ = e.experience.Learn(l.Known) // usable has tried it
		e.remembered.calibration = l.Calibration
	case e.options.Note != nil:
		path, _ := m.path(learnedKind, e.remembered.key)
		e.options.Note(fmt.Sprintf("what earlier runs learned of %s's drafts cannot be read and is ignored: %s", e.name, path))
	}
}

// keep writes what was learned, where that is worth it. What cannot be written is no
// error: the next run learns again.
func (e *Engine) keep(least time.Duration) {
	m := &e.remembered
	m.mutex.Lock()
	defer m.mutex.Unlock()
	tokens := e.experience.Tokens()
	if m.key == "" || tokens < m.tokens+learnedTokens || time.Since(m.written) < least {
		return
	}
	m.write(e)
}

func (m *remembered) write(e *Engine) {
	e.options.Measurements.write(learnedKind, m.key, learned{learnedVersion, e.experience.Known(), m.calibration})
	m.tokens, m.written = e.experience.Tokens(), time.Now()
}

// Calibration is what is kept of the model's drafts by [Engine.Calibrate]; nil: nothing.
func (e *Engine) Calibration() *Calibration {
	e.remembered.mutex.Lock()
	defer e.remembered.mutex.Unlock()
	return e.remembered.calibration
}

// calibrated keeps a calibration, and begins with it.
func (e *Engine) calibrated(c *Calibration) error {
	if err := e.experience.Learn(c.Known); err != nil {
		return err
	}
	e.remembered.mutex.Lock()
	defer e.remembered.mutex.Unlock()
	e.remembered.calibration = c
	e.remembered.write(e)
	return nil
}
