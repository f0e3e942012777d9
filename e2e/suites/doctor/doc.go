// Package doctor runs `holdfast doctor` and `holdfast debug` against a real API server, a real S3
// server and `holdfast up`.
package doctor
