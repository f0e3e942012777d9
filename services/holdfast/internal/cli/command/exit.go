package command

import (
	"errors"
	"fmt"
)

// Exit codes of the CLI. Every other error ends with CodeError.
const (
	CodeOK          = 0
	CodeError       = 1
	CodePartial     = 2   // the job ended PartiallyFailed
	CodeInterrupted = 130 // the user stopped waiting; the job was not stopped
)

// ExitError is an error with its own exit code. Without Err it is a result that the command has printed.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the wrapped error's text.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *ExitError) Unwrap() error { return e.Err }

// IsPrinted reports whether the command has printed what its error stands for.
func IsPrinted(err error) bool {
	var exit *ExitError
	return errors.As(err, &exit) && exit.Err == nil
}

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
