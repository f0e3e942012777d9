package action

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Canceller is implemented by an action that cancels an operation whose beginning it just answered.
type Canceller interface {
	// CancelBegun requests the operation with that ID to stop, as Operations.Cancel does; the error of
	// an operation that cannot be stopped wraps ErrNotCancelled. job is the Backup or Restore as JSON.
	CancelBegun(ctx context.Context, id string, job []byte) error
}

// ErrNotCancelled means that an operation runs to its own end, whatever is asked of it.
var ErrNotCancelled = errors.New("the operation does not stop")

// errNoCanceller is why the operation of an action is not cancelled.
var errNoCanceller = errors.New("the action cannot be asked to")

// refuseLimit bounds the call that cancels an operation whose beginning is refused.
const refuseLimit = 30 * time.Second

// Refuse cancels the operation, once, that a call of the action began and whose answer is refused, also
// where ctx has ended meanwhile. The error wraps why and says what became of the operation.
func Refuse(ctx context.Context, a Action, id string, job []byte, why error) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), refuseLimit)
	defer end()
	err := errNoCanceller
	if c, ok := a.(Canceller); ok {
		err = c.CancelBegun(ctx, id, job)
	}
	if err != nil {
		return fmt.Errorf("%w; operation %.256q, which it began, could not be cancelled: %w", why, id, err)
	}
	return fmt.Errorf("%w; operation %.256q, which it began, is cancelled", why, id)
}
