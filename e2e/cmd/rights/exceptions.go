package main

// namespace is the server namespace of the sites.
const namespace = "velero"

// exceptions are the grants whose use does not show in the audit log, each with the reason.
var exceptions = map[string]string{}
