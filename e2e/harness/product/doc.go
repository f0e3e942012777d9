// Package product drives the built binaries of this repository as a user would: the command line as
// child processes, `holdfast up` as a server, the services as processes of their own. It imports
// nothing of the product.
package product
