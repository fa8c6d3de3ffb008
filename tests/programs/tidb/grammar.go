// Reads statements, one a line, and parses each with TiDB's own SQL parser. The first that is not in its grammar ends the
// check with what the parser says. A transaction has to begin pessimistic: only there does `FOR UPDATE` wait for locks.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/pingcap/tidb/pkg/parser"
	"github.com/pingcap/tidb/pkg/parser/ast"
	_ "github.com/pingcap/tidb/pkg/parser/test_driver"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24) // a long text is written as a number of base 16
	grammar := parser.New()
	parsed, bad := 0, 0
	for lines.Scan() {
		statement := strings.TrimSpace(lines.Text())
		if statement == "" {
			continue
		}
		nodes, _, err := grammar.ParseSQL(statement)
		if err == nil && len(nodes) != 1 {
			err = fmt.Errorf("%d statements on one line", len(nodes))
		}
		if err == nil {
			if begin, ok := nodes[0].(*ast.BeginStmt); ok && begin.Mode != ast.Pessimistic {
				err = fmt.Errorf("a transaction of mode %q, not pessimistic", begin.Mode)
			}
		}
		if err != nil {
			fmt.Printf("not TiDB's grammar: %s\n    %v\n", statement, err)
			bad++
			continue
		}
		parsed++
	}
	if err := lines.Err(); err != nil {
		fmt.Println(err)
		bad++
	}
	fmt.Printf("%d statements are of TiDB's grammar, %d are not\n", parsed, bad)
	if bad > 0 || parsed == 0 {
		os.Exit(1)
	}
}
