// Package failpoint lets a test stop a real process at a named step.
//
// Product code calls Hit at steps where a death could leave something half done. Without the build
// tag failpoint, which release builds never have, Hit is empty and inlined away. With it, a step is
// armed by creating a file in the directory named by the environment variable FAILPOINT_DIR, shared
// by any number of processes: the file is called like the point, with dots for slashes, and holds
//
//	kill | stop | panic | delay <duration>
//
// and optionally @<n>, to act at the n-th hit of the point, counted over all processes. Exactly one
// process acts; before it does, the file is renamed to <point>.hit and holds that process's id.
package failpoint
