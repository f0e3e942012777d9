package operation

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/holdfast-io/holdfast/pkg/job/document"
)

const (
	// maxTallied bounds the text of the operations of a Tally: the rest of maxListBytes is left to what
	// other documents have besides the operations.
	maxTallied = maxListBytes / 4 * 3
	// leastResource is the least that an item takes in the text of a list.
	leastResource = len(`{"resource":"","name":""},`)
	// mostFields is more than the text of an operation takes without its values, escaped the most that
	// a byte of one takes.
	mostFields, escaped = 512, len(`\u0000`)
)

// ErrFull means that the list of a job's operations takes no further one.
var ErrFull = fmt.Errorf("%w: the list of operations is full", document.ErrTooLarge)

// Tally counts what the list of a job will take while its operations are begun, so that none is begun
// that the list does not take. The zero value has counted none. Safe for concurrent use.
type Tally struct {
	mu   sync.Mutex
	kept keeper
	text int
}

// Reserved is what a Tally counts of an operation that may be begun.
type Reserved struct {
	tally        *Tally
	memory, text int
}

// Add counts an operation that was begun before, in a list that is full as well.
func (t *Tally) Add(op *Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open()
	t.text += mostFields
	if text, err := json.Marshal(op); err == nil {
		t.text += len(text) - mostFields
	}
	_ = t.kept.add(op) // what is over the limit is counted all the same
}

// Reserve counts an operation that is about to be begun, as far as it is known: names are the most
// bytes that its ID and its process will take. With an error, which wraps ErrFull, nothing is reserved.
func (t *Tally) Reserve(op *Operation, names int) (*Reserved, error) {
	r := &Reserved{tally: t}
	known := names
	for _, text := range []string{op.Action, op.Kind, op.Key, op.Item.Group, op.Item.Resource, op.Item.Namespace, op.Item.Name} {
		known += len(text)
	}
	const texts = 10 // with the ID, instance and process
	memory := int(unsafe.Sizeof(Operation{})+unsafe.Sizeof(State{})+unsafe.Sizeof(Home{})) + texts*internedBytes + known
	text := mostFields + known*escaped
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open()
	if t.kept.used+memory > maxKept || t.text+text > maxTallied {
		return r, full()
	}
	r.memory, r.text = memory, text
	t.kept.used += memory
	t.text += text
	return r, nil
}

// Begun counts the operation in place of what was reserved. Where no list takes it with its
// post-operation items, or this one does not, the error wraps document.ErrTooLarge and op has none of
// them any more; listed is whether the list takes it without.
func (r *Reserved) Begun(op *Operation) (listed bool, err error) {
	t := r.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	r.release()
	if err = t.add(op); err == nil {
		return true, nil
	}
	op.PostOperation = nil
	return t.add(op) == nil, err
}

// Release counts no more what was reserved: nothing was begun.
func (r *Reserved) Release() {
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	r.release()
}

// release is Release; the caller holds the lock of the tally.
func (r *Reserved) release() {
	r.tally.kept.used -= r.memory
	r.tally.text -= r.text
	r.memory, r.text = 0, 0
}

// open makes the zero value ready; the caller holds the lock.
func (t *Tally) open() {
	if t.kept.texts == nil {
		t.kept = newCounter()
	}
}

func newCounter() keeper { return keeper{count: true, texts: map[string]string{}} }

// add counts an operation, or nothing of it with an error; the caller holds the lock.
func (t *Tally) add(op *Operation) error {
	n, err := op.text()
	if err != nil {
		return err
	}
	if t.text+n > maxTallied || t.kept.try(op) != nil {
		return full()
	}
	t.text += n
	return nil
}

func full() error {
	return fmt.Errorf("%w: it takes %d bytes of text and %d of memory", ErrFull, maxTallied, maxKept)
}

// text returns the length of the text of a list with this operation alone. The error wraps
// document.ErrTooLarge where no list takes it.
func (op *Operation) text() (int, error) {
	least := 0
	for i := range op.PostOperation {
		item := &op.PostOperation[i]
		least += leastResource + len(item.Group) + len(item.Resource) + len(item.Namespace) + len(item.Name)
	}
	if least > maxOneBytes {
		return 0, op.tooLarge()
	}
	text, err := encode(&List{Operations: []Operation{*op}})
	if errors.Is(err, document.ErrTooLarge) {
		return 0, op.tooLarge()
	}
	return len(text), err
}

func (op *Operation) tooLarge() error {
	why := "this one takes more"
	if n := len(op.PostOperation); n > 0 {
		why = fmt.Sprintf("this one has %d post-operation items", n)
	}
	return fmt.Errorf("%w: a list takes %d bytes of one operation, and %s", document.ErrTooLarge, maxOneBytes, why)
}

// listed returns those of the operations that have a place in one list, without their post-operation
// items.
func listed(ops []Operation) (out []Operation) {
	t := Tally{kept: newCounter()}
	for i := range ops {
		op := ops[i]
		op.PostOperation = nil
		if t.add(&op) == nil {
			out = append(out, op)
		}
	}
	return out
}
