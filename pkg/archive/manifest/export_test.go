package manifest

// AppendFooter is for manifests that no writer makes.
var AppendFooter = appendFooter
