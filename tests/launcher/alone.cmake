# Read by ctest, after the tests have been discovered. What these judge are milliseconds between processes that each need a core:
# beside other tests it is those that they would judge.
set_tests_properties(
  LaunchHostsFaults.TheRankThatFailedFirstIsNamedOverSlowLinks
  LaunchHostsFaults.StrangersDoNotDisturbAJobThatGathers
  PROPERTIES RUN_SERIAL TRUE)
