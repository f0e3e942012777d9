// Package jobtest holds what tests of jobs share: random numbers that a seed replays, a message bus, a holder of claims, and at how
// many of its writes a job is ended. Only tests import it.
package jobtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Variable is the environment variable that holds the seed of a run to replay.
const Variable = "TEST_SEED"

// Source is a sequence of numbers that goroutines may share. Which goroutine gets which number is
// not replayed.
type Source struct {
	mu     sync.Mutex
	random *rand.Rand
}

// Random returns the numbers of the seed in TEST_SEED, or of a new seed. The test's log names the
// seed.
func Random(t testing.TB) *Source {
	t.Helper()
	seed, given, err := Seed()
	if err != nil {
		t.Fatal(err)
	}
	if !given {
		seed = rand.Uint64()
	}
	t.Logf("%s=%d replays the random numbers of this run", Variable, seed)
	return &Source{random: rand.New(rand.NewPCG(seed, 1))}
}

// Seed is the one in TEST_SEED, if it is set.
func Seed() (seed uint64, given bool, err error) {
	text := os.Getenv(Variable)
	if text == "" {
		return 0, false, nil
	}
	seed, err = strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", Variable, err)
	}
	return seed, true, nil
}

// IntN is a number from 0 to n-1.
func (s *Source) IntN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// Float64 is a number from 0 to 1, without 1.
func (s *Source) Float64() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.Float64()
}
