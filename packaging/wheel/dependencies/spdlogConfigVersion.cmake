# Whichever tools/install-deps.sh has installed.
set(PACKAGE_VERSION_COMPATIBLE TRUE)
