package itemaction

import (
	"fmt"
	"strings"
)

// shown is how many errors about items are kept; more are counted.
const shown = 20

// FailedError lists what actions did not do. The backup must stay until a later attempt succeeds.
type FailedError struct {
	// Errs are the first errors, each naming plugin, method and object, and what ended the attempt
	// early.
	Errs []error
	// More is how many errors there were besides.
	More int
}

// Error joins the messages.
func (f *FailedError) Error() string { return strings.Join(f.Messages(), "; ") }

// Unwrap returns Errs.
func (f *FailedError) Unwrap() []error { return f.Errs }

// Messages returns the texts of the errors, and at the end how many there were besides.
func (f *FailedError) Messages() []string {
	texts := make([]string, 0, len(f.Errs)+1)
	for _, err := range f.Errs {
		texts = append(texts, err.Error())
	}
	if f.More > 0 {
		texts = append(texts, fmt.Sprintf("and %d more errors", f.More))
	}
	return texts
}

func (f *FailedError) addError(err error) {
	if len(f.Errs) >= shown {
		f.More++
		return
	}
	f.Errs = append(f.Errs, err)
}

// FailedWith keeps the first of the errors and counts the others.
func FailedWith(errs []error) *FailedError {
	f := &FailedError{}
	for _, err := range errs {
		f.addError(err)
	}
	return f
}
