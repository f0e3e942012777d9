// Package plugin is for authors of plugins: small interfaces for what a plugin can do in a backup,
// a restore or a deletion, and the Registry that names them. Package serve makes a process of a
// Registry, package plugintest calls one over the same transport, and the directory example holds a
// whole plugin to begin with. The server's side, which starts plugin processes, is package
// pluginhost in pkg/extension of the server's repository.
//
// One binary works in Holdfast and in Velero: actions, object stores and volume snapshotters speak
// Velero's protocol, which cannot carry asynchronous actions, so Velero does not see those.
//
// A binary cannot hold this package and Velero's framework: both register the messages of Velero's
// protocol.
//
// A server calls one plugin from many goroutines at once. Every call has a deadline, at which its
// context is cancelled; a call that does not return by then, panics or fails costs the object it
// was for an error and nothing else. Errors may be gRPC statuses. A line logged at error level
// counts as an error of the backup or restore, a warning as a warning.
package plugin
