// Package action has the Go interfaces of plugins and built-in actions, one per concern, for every
// kind and version of the protocol behind it. Package pluginhost implements the interfaces for
// plugin processes; the services call them and do not depend on a protocol.
//
// Every method may be slow and may fail; a failure costs the object it was called for, nothing
// else. Implementations keep their own deadlines, turn panics into errors, return soon after ctx
// ends and are safe for concurrent use. Their errors name the action and the method; the caller
// adds the object where it is not an argument.
package action
