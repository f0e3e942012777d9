package checkpoint

import "time"

// Phases of hooks.
const (
	HookPre  = "pre"
	HookPost = "post"
)

// HookCommand is a command that a hook runs.
type HookCommand struct {
	// Field is where it comes from, as messages name it.
	Field     string        `json:"field"`
	Container string        `json:"container"`
	Command   []string      `json:"command"`
	Fail      bool          `json:"fail,omitempty"`
	Timeout   time.Duration `json:"timeout"`
}

// HookedPod is a Pod whose hooks begin once its record is durable: from then on its post hooks are
// owed, whatever becomes of it.
type HookedPod struct {
	Object
	// Pre is how many pre hooks it has.
	Pre int `json:"pre,omitempty"`
	// Post are its post hooks, as the first holder of the Pod found them.
	Post []HookCommand `json:"post,omitempty"`
}

// Hook names a hook of a Pod: the command with that index among those of its phase.
type Hook struct {
	Pod   Object `json:"pod"`
	Phase string `json:"phase"`
	Index int    `json:"index,omitempty"`
}

// HookIntent is a hook that runs once its record is durable.
type HookIntent struct {
	Hook
	// Retry is true for a post hook that an earlier holder may have run: how that ended is not
	// known.
	Retry bool `json:"retry,omitempty"`
}

// HookOutcome is how a hook ended. A holder that has it does not run the hook again.
type HookOutcome struct {
	Hook
	// Error is empty for a hook that succeeded.
	Error string `json:"error,omitempty"`
}

// HooksEnded records that all hooks of a Pod have ended, and the part has the log entries about its post hooks.
type HooksEnded struct {
	Pod       Object `json:"pod"`
	Attempted int    `json:"attempted"`
	Failed    int    `json:"failed,omitempty"`
}
