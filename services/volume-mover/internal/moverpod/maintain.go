package moverpod

import "time"

// ValueMaintain is the value of LabelMover of a mover that maintains a repository.
const ValueMaintain = "maintain"

// Maintain are the arguments that maintain a repository.
type Maintain struct {
	Namespace, Holder string
	FullInterval      time.Duration
}

// BuildCreateArgs returns the command line that creates the repository of a namespace if there is none.
func BuildCreateArgs(namespace string) []string {
	return append(append([]string{"maintain"}, commonArgs(namespace)...), "--mode", "create")
}

// BuildArgs returns the command line.
func (m Maintain) BuildArgs() []string {
	return append(append([]string{"maintain"}, commonArgs(m.Namespace)...), "--holder", m.Holder, "--full-interval", m.FullInterval.String())
}
