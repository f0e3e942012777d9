package command

import (
	"fmt"
	"time"
)

// quiet is how often counts alone are printed where lines cannot be rewritten.
const quiet = 5 * time.Second

// Progress shows a running job: one line that is rewritten on a terminal, a line at every phase and
// every few seconds elsewhere.
type Progress struct {
	global  *Global
	started time.Time
	printed time.Time
	phase   string
	line    string
	open    bool
}

// NewProgress starts the display; the clock starts now.
func NewProgress(g *Global) *Progress {
	return &Progress{global: g, started: g.Clock.Now()}
}

// Show displays the state. done and total are counts of items; total is 0 while it is not counted.
func (p *Progress) Show(phase string, done, total int) {
	if phase == "" {
		phase = "New"
	}
	line := phase
	if total > 0 {
		line = fmt.Sprintf("%s %d/%d items", phase, done, total)
	}
	now := p.global.Clock.Now()
	if p.global.Live {
		elapsed := now.Sub(p.started).Truncate(time.Second)
		_, _ = fmt.Fprintf(p.global.Out, "\r\x1b[K%s (%s)", line, elapsed)
		p.open = true
		return
	}
	if line == p.line || phase == p.phase && now.Sub(p.printed) < quiet {
		return
	}
	p.phase, p.line, p.printed = phase, line, now
	_, _ = fmt.Fprintln(p.global.Out, line)
}

// End leaves the display; what follows begins on a new line.
func (p *Progress) End() {
	if p.open {
		_, _ = fmt.Fprintln(p.global.Out)
		p.open = false
	}
}

// Notice tells on ErrOut how far a command is that takes longer than a second: one line that is rewritten on a
// terminal, a line every few seconds elsewhere.
type Notice struct {
	global *Global
	next   time.Time
	open   bool
}

// NewNotice starts the display; the clock starts now.
func NewNotice(g *Global) *Notice {
	return &Notice{global: g, next: g.Clock.Now().Add(time.Second)}
}

// Show displays a line, if it is time to.
func (n *Notice) Show(line string) {
	now := n.global.Clock.Now()
	switch {
	case now.Before(n.next):
	case n.global.Live:
		_, _ = fmt.Fprintf(n.global.ErrOut, "\r\x1b[K%s", line)
		n.open = true
	default:
		_, _ = fmt.Fprintln(n.global.ErrOut, line)
		n.next = now.Add(quiet)
	}
}

// End removes the line of a terminal.
func (n *Notice) End() {
	if n.open {
		_, _ = fmt.Fprint(n.global.ErrOut, "\r\x1b[K")
		n.open = false
	}
}
