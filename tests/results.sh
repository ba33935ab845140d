# Sourced by the suites (tests/*/run.sh): how they tell what became of a test. Needs $wanted, the names asked for with blanks around (" $* ").
passed=0 failed=0 skipped=0

# With CI=true a test that cannot run here is a failure.
result() { # NAME ok|skip|fail [DETAIL]
    case $2 in
        ok) passed=$((passed + 1)); echo "ok   $1" ;;
        skip) echo "SKIP $1: $3"
            if [ "${CI:-}" = true ]; then failed=$((failed + 1)); else skipped=$((skipped + 1)); fi ;;
        *) failed=$((failed + 1)); echo "FAIL $1${3:+: $3}" ;;
    esac
}
# By the whole name or by its first word; all if nobody asked.
is_wanted() { [ "$wanted" = "  " ] || [[ "$wanted" = *" ${1%% *} "* || "$wanted" = *" $1 "* ]]; }
# The last line of a suite, which all.sh adds up; false if a test failed.
sum_up() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}
