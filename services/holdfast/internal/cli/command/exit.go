package command

import "errors"

// Exit codes of the CLI. Every other error ends with CodeError.
const (
	CodeOK          = 0
	CodeError       = 1
	CodePartial     = 2   // the job ended PartiallyFailed
	CodeInterrupted = 130 // the user stopped waiting; the job was not stopped
)

// ExitError is an error with its own exit code.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the wrapped error's text.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit code for what a command returned.
func ExitCode(err error) int {
	var exit *ExitError
	switch {
	case err == nil:
		return CodeOK
	case errors.As(err, &exit):
		return exit.Code
	default:
		return CodeError
	}
}
