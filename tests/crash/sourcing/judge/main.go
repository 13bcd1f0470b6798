// Judges histories of accounts with Porcupine: are the answers those of one account after the other?
//
// Reads the lines that account_history.py writes, prints one line of JSON, and ends with 0 whatever
// the verdict is: {"accounts": 50, "operations": 9000, "wrong": [], "undecided": []}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Client   int    `json:"client"`
	Entity   string `json:"entity"`
	Called   int64  `json:"called"`
	Returned *int64 `json:"returned"`
	Amount   *int   `json:"amount"`
	Expected *int   `json:"expected"`
	Outcome  string `json:"outcome"`
	Version  int    `json:"version"`
	Balance  int    `json:"balance"`
}

type account struct{ balance, version int }

type answer struct {
	outcome string
	version int
}

// What a command answers, and the account after it.
func carryOut(before account, amount int, expected *int) (answer, account) {
	if expected != nil && *expected != before.version {
		return answer{"conflict", before.version}, before
	}
	if before.balance+amount < 0 {
		return answer{"rejected", before.version}, before
	}
	after := account{before.balance + amount, before.version + 1}
	return answer{"accepted", after.version}, after
}

// An operation that never returned may have had any effect: porcupine takes it last, or where it fits.
func step(state, input, output interface{}) (bool, interface{}) {
	before, seen := state.(account), input.(line)
	if seen.Amount == nil {
		return before == account{seen.Balance, seen.Version}, before
	}
	found, after := carryOut(before, *seen.Amount, seen.Expected)
	return seen.Returned == nil || found == answer{seen.Outcome, seen.Version}, after
}

func operation(seen line) porcupine.Operation {
	returned := int64(math.MaxInt64)
	if seen.Returned != nil {
		returned = *seen.Returned
	}
	return porcupine.Operation{ClientId: seen.Client, Input: seen, Call: seen.Called, Return: returned}
}

func readHistories() (map[string][]porcupine.Operation, int, error) {
	histories, count := map[string][]porcupine.Operation{}, 0
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var seen line
		if err := json.Unmarshal(lines.Bytes(), &seen); err != nil {
			return nil, 0, err
		}
		histories[seen.Entity] = append(histories[seen.Entity], operation(seen))
		count++
	}
	return histories, count, lines.Err()
}

func main() {
	histories, count, err := readHistories()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	model := porcupine.Model{Init: func() interface{} { return account{} }, Step: step}
	wrong, undecided := []string{}, []string{}
	for entity, history := range histories {
		switch porcupine.CheckOperationsTimeout(model, history, time.Minute) {
		case porcupine.Illegal:
			wrong = append(wrong, entity)
		case porcupine.Unknown:
			undecided = append(undecided, entity)
		}
	}
	sort.Strings(wrong)
	sort.Strings(undecided)
	verdict := map[string]interface{}{
		"accounts": len(histories), "operations": count, "wrong": wrong, "undecided": undecided,
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdict); err != nil {
		os.Exit(1)
	}
}
