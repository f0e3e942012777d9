package moverpod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// ValueFiles is the value of LabelMover of a mover that files of a backup are read with.
const ValueFiles = "files"

// binary is the path of the mover's binary in its container: that of the first process.
const binary = "/proc/1/exe"

// Verbs of Files.
const (
	ListFiles = "list"
	ReadFile  = "read"
)

// Files are the arguments that read files of a backup. Namespace, Claim, Pod and Volume select the volume.
type Files struct{ Verb, Backup, Namespace, Claim, Pod, Volume, Path string }

// BuildArgs returns the command line.
func (f Files) BuildArgs() []string {
	args := append([]string{"files", f.Verb}, commonArgs(f.Namespace)...)
	return append(args, "--backup="+f.Backup, "--claim="+f.Claim, "--pod="+f.Pod, "--volume="+f.Volume, "--path="+f.Path)
}

// BuildFilesPod returns a mover Pod that does nothing for a time, and the command that answers in it: what that prints
// is content of files, which has no place in the log of a Pod.
func BuildFilesPod(s Settings, name string, f Files, limit time.Duration) (pod *corev1.Pod, command []string) {
	pod = BuildPod(s, Mover{Name: name, Labels: BuildLabels(ValueFiles, ""), Args: f.BuildArgs()})
	c := &pod.Spec.Containers[0]
	command = append([]string{binary}, c.Args...)
	c.Args = []string{"files", "wait", "--for", limit.String()}
	pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(limit.Seconds()))
	return pod, command
}
