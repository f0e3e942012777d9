package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// printer writes the demo's output: numbered steps, and what belongs to a step indented below it.
// It is safe for concurrent use.
type printer struct {
	out   io.Writer
	began time.Time

	mutex sync.Mutex
	step  int
	line  bytes.Buffer
}

func newPrinter(out io.Writer) *printer { return &printer{out: out, began: time.Now()} }

// Step starts a numbered step.
func (p *printer) Step(text string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.step++
	_, _ = fmt.Fprintf(p.out, "\n%5.1f s  %d. %s\n", time.Since(p.began).Seconds(), p.step, fmt.Sprintf(text, args...))
}

// Say writes a line of the current step.
func (p *printer) Say(text string, args ...any) {
	_, _ = fmt.Fprintf(p, text+"\n", args...)
}

// Command shows a command as a user would type it.
func (p *printer) Command(words ...string) { p.Say("$ %s", strings.Join(words, " ")) }

// Write implements io.Writer: whole lines are indented and printed, the rest waits for its end. A
// carriage return ends a line too.
func (p *printer) Write(data []byte) (int, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, c := range data {
		if c != '\n' && c != '\r' {
			p.line.WriteByte(c)
			continue
		}
		if p.line.Len() > 0 {
			_, _ = fmt.Fprintf(p.out, "         %s\n", p.line.Bytes())
		}
		p.line.Reset()
	}
	return len(data), nil
}
