// Package chart tests the helm chart: what it renders, what it refuses, that a real API server
// takes it, and that the rights it gives are what the services need.
package chart
