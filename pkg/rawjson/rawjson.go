// Package rawjson finds and writes values in JSON text without decoding it.
package rawjson
