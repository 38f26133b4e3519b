// Who may be silent: strangers up to a number, the second connections of 1.13 clients always.
#include "store/server/silent_clients.hpp"

#include <gtest/gtest.h>

namespace ddp::store {
namespace {

TEST(SilentClients, TheOldestIsSurplusWhenThereAreTooMany) {
    SilentClients silent{2};
    silent.add(1, "a");
    silent.add(2, "a");
    EXPECT_FALSE(silent.surplus());
    silent.add(3, "b");
    EXPECT_EQ(silent.surplus(), 1U);
    silent.remove(1);
    EXPECT_FALSE(silent.surplus());
    EXPECT_EQ(silent.oldest(), 2U);
}

TEST(SilentClients, APartnerThatComesLaterIsExcused) {
    SilentClients silent{2};
    silent.add(1, "a");
    silent.remove(1);
    silent.excuse_partner_of(1, "a");
    silent.add(2, "b");  // another host: a stranger
    silent.add(3, "a");  // the partner
    silent.add(4, "a");  // a stranger again
    EXPECT_EQ(silent.oldest(), 2U);
    silent.remove(2);
    EXPECT_EQ(silent.oldest(), 4U);
}

TEST(SilentClients, APartnerThatIsHereAlreadyIsExcused) {
    SilentClients silent{2};
    silent.add(1, "a");
    silent.add(2, "a");
    silent.add(3, "b");
    silent.add(4, "b");
    silent.remove(3);
    silent.excuse_partner_of(3, "b");
    silent.remove(1);
    silent.remove(2);
    EXPECT_FALSE(silent.oldest());
}

TEST(SilentClients, AnOlderConnectionIsNobodysPartner) {
    SilentClients silent{2};
    silent.add(1, "a");
    silent.add(2, "a");
    silent.remove(2);
    silent.excuse_partner_of(2, "a");
    EXPECT_EQ(silent.oldest(), 1U);
}

TEST(SilentClients, NobodysPartnerIsDueOnceItHasGone) {
    SilentClients silent{2};
    silent.excuse_partner_of(1, "a");
    silent.excuse_partner_of(2, "a");
    silent.forget(1, "a");
    silent.add(3, "a");
    EXPECT_FALSE(silent.oldest()) << "the other's partner";
    silent.add(4, "a");
    EXPECT_EQ(silent.oldest(), 4U);
}

TEST(SilentClients, ClearForgetsPartnersThatWereDue) {
    SilentClients silent{2};
    silent.excuse_partner_of(1, "a");
    silent.clear();
    silent.add(2, "a");
    EXPECT_EQ(silent.oldest(), 2U);
}

}  // namespace
}  // namespace ddp::store
