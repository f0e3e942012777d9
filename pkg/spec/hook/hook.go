// Package hook reads what hooks a backup or restore asks for: from its spec, and from the
// annotations of a Pod, which take the place of the spec's for that Pod (Velero 1.18).
package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// DefaultTimeout is that of a command which names none.
const DefaultTimeout = 30 * time.Second

// Exec is a command that runs in a container of a Pod.
type Exec struct {
	// Field is where it comes from, for messages: "spec.hooks.resources[0].pre[1].exec" or
	// "annotation pre.hook.backup.velero.io/command".
	Field string
	// Container is the container's name; empty is the Pod's first one.
	Container string
	Command   []string
	// Fail is true where nothing follows after it failed: an explicit onError Fail. Unset it is an
	// error of the job and stops nothing.
	Fail    bool
	Timeout time.Duration
}

// Problem is a field of a spec that cannot be used.
type Problem struct{ Field, Message string }

var (
	errNoCommand = errors.New("names no command")
	errOnError   = errors.New("is neither Continue nor Fail")
)

// checkExec finds what is wrong with a command, with fields below a path.
func checkExec(path, container string, command []string, mode velerov1.HookErrorMode) (out []Problem) {
	if len(command) == 0 || command[0] == "" {
		out = append(out, Problem{path + ".command", errNoCommand.Error()})
	}
	if mode != "" && mode != velerov1.HookErrorModeContinue && mode != velerov1.HookErrorModeFail {
		out = append(out, Problem{path + ".onError", fmt.Sprintf("%q %v", mode, errOnError)})
	}
	if strings.ContainsAny(container, "/ ") {
		out = append(out, Problem{path + ".container", fmt.Sprintf("%q is not the name of a container", container)})
	}
	return out
}

// checkTimeout finds a timeout that is none.
func checkTimeout(field string, d time.Duration) []Problem {
	if d < 0 {
		return []Problem{{field, "must not be negative"}}
	}
	return nil
}

// hookAnnotations reads the fields of one hook out of the annotations of a Pod.
type hookAnnotations struct {
	get    func(key string) string
	prefix string
}

func (a *hookAnnotations) errorAt(key, format string, args ...any) error {
	return fmt.Errorf("annotation %s%s: %w", a.prefix, key, fmt.Errorf(format, args...))
}

// parseCommand reads the command: a JSON list where the value begins like one, else the name of a
// program.
func (a *hookAnnotations) parseCommand() ([]string, error) {
	text := a.get(a.prefix + "command")
	if !strings.HasPrefix(strings.TrimSpace(text), "[") {
		return []string{text}, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, a.errorAt("command", "%.100q is not a JSON list of texts: %w", text, err)
	}
	if len(list) == 0 || list[0] == "" {
		return nil, a.errorAt("command", "%w", errNoCommand)
	}
	return list, nil
}

func (a *hookAnnotations) failsOnError() (bool, error) {
	switch mode := velerov1.HookErrorMode(a.get(a.prefix + "on-error")); mode {
	case velerov1.HookErrorModeFail:
		return true, nil
	case velerov1.HookErrorModeContinue, "":
		return false, nil
	default:
		return false, a.errorAt("on-error", "%.100q %w", mode, errOnError)
	}
}

// parseDuration reads a duration that is 0 or more; without the annotation it is otherwise.
func (a *hookAnnotations) parseDuration(key string, otherwise time.Duration) (time.Duration, error) {
	text := a.get(a.prefix + key)
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil {
		return 0, a.errorAt(key, "%.100q is not a duration such as 90s: %w", text, err)
	}
	if d == 0 {
		return otherwise, nil
	}
	return d, nil
}

// parseExec reads the command with the fields that all kinds of hooks have. What is wrong with one field
// is in the error; the others are read all the same.
func (a *hookAnnotations) parseExec(timeoutKey string) (*Exec, error) {
	e := &Exec{Field: "annotation " + a.prefix + "command", Container: a.get(a.prefix + "container")}
	var errs [3]error
	e.Command, errs[0] = a.parseCommand()
	e.Fail, errs[1] = a.failsOnError()
	e.Timeout, errs[2] = a.parseDuration(timeoutKey, DefaultTimeout)
	return e, errors.Join(errs[:]...)
}

// orphanError returns an error where annotations speak of a hook that lacks the required key.
func (a *hookAnnotations) orphanError(required string) error {
	for _, key := range hookKeys[a.prefix] {
		if a.get(a.prefix+key) != "" {
			return a.errorAt(key, "there is no annotation %s beside it", a.prefix+required)
		}
	}
	return nil
}
