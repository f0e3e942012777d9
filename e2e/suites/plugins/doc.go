// Package plugins runs plugins made with the SDK in the services, on a real API server.
package plugins
