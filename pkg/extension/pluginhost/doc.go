// Package pluginhost runs plugin processes and implements the interfaces of package action with
// them.
//
// It uses Velero's plugin protocol (hashicorp/go-plugin, protocol version 2, gRPC on a unix
// socket), so that binaries built for Velero run unmodified, every kind in every version; plugins
// of Holdfast's own SDK answer on the same socket in more detail. A [Host] keeps which binaries
// register what. A [Session] is one job's use of them: it starts a process per binary when it is
// first needed, and ends all of them with the job. [Operations] follows work that continues after a
// call, in processes that all jobs share.
//
// A plugin is not trusted to behave. Every call has a deadline and a limit on the answer's size; a
// process that crashes, hangs or answers nonsense costs the call an [Error] that names the plugin,
// the method and the object, and is replaced by the next call; one that keeps crashing is not
// started for a while. Processes are killed with all they started, also when the host itself is
// killed.
package pluginhost
