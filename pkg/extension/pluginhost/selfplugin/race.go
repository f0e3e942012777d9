//go:build race

package selfplugin

const raceDetector = true
