// Package up tests how `holdfast up` starts and stops on a real cluster: what it sets up, what it
// refuses, and that it ends in order.
package up
