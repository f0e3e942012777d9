package collect

import "sync"

// Progress counts the objects of a running job. The zero value is ready; safe
// for concurrent use.
type Progress struct {
	mu     sync.Mutex
	done   int
	errors int
	warned int
	held   int // objects that wait for their actions
	ahead  map[string]int64
}

// Counts is one reading of a Progress.
type Counts struct{ Items, Total, Warnings, Errors int }

// Read returns the counts now. Total grows while lists are read: it knows only
// of lists already begun.
func (p *Progress) Read() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := p.done + p.held
	for _, n := range p.ahead {
		total += int(n)
	}
	return Counts{Items: p.done, Total: total, Warnings: p.warned, Errors: p.errors}
}

// page records a verified page of a unit and how many objects may follow.
func (p *Progress) page(unit string, items int, remaining int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += items
	if p.ahead == nil {
		p.ahead = map[string]int64{}
	}
	if remaining > 0 {
		p.ahead[unit] = remaining
	} else {
		delete(p.ahead, unit)
	}
}

// hold records that objects wait for their actions, or with a negative number that
// they do no longer.
func (p *Progress) hold(waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += waiting
}

// acted records an object that was processed.
func (p *Progress) acted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

// restore adds what an earlier holder had stored.
func (p *Progress) restore(items, warnings, errors int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += items
	p.warned += warnings
	p.errors += errors
}

func (p *Progress) noted(warnings, errors int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warned += warnings
	p.errors += errors
}
